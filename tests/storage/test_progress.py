from matchkernel.storage.progress import adding, within


def test_pieces_add_up():
    seen = []
    add = adding(lambda *counts: seen.append(counts), 9)
    for piece in (4, 4, 1):
        add(piece)
    assert seen == [(4, 9), (8, 9), (9, 9)]
    adding(None, 9)(4)


def test_a_part_is_counted_within_the_whole():
    seen = []
    part = within(lambda *counts: seen.append(counts), 10, 50)
    part(3, 20)
    assert seen == [(13, 50)]
    assert within(None, 10, 50) is None
