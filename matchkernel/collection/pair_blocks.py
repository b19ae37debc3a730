"""Divide pairs into blocks that share images, so that a worker reads the features of an image once for many pairs."""

import heapq
from collections.abc import Iterator, Sequence

from matchkernel.photos.pair_lists import Pair

MOST_IMAGES = 64  # of a block; 4,000 descriptors of 128 numbers each are 131 MB
MOST_PAIRS, FEWEST_PAIRS = 256, 8  # of a block
BLOCKS = 64  # at least, if there are enough pairs: more than most machines have cores


def pair_blocks(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """All pairs, in blocks that depend on nothing but the pairs and their order.

    A block grows from the first pair that is left: the image that shares the most pairs with those in it comes next.
    """
    most = max(FEWEST_PAIRS, min(MOST_PAIRS, len(pairs) // BLOCKS))
    order: dict[str, int] = {}
    partners: dict[str, dict[str, int]] = {}  # for each image: its partners, and the numbers of the pairs
    for number, (a, b) in enumerate(pairs):
        for one, other in ((a, b), (b, a)):
            order.setdefault(one, len(order))
            partners.setdefault(one, {})[other] = number
    return [
        [pairs[number] for number in sorted(block)]
        for image in order
        for block in iter(lambda image=image: _grown(image, partners, order, most), [])  # type: ignore[misc]
    ]


def _grown(image: str, partners: dict[str, dict[str, int]], order: dict[str, int], most: int) -> list[int]:
    """Take a block of at most so many pairs, with this image among them, out of those that are left."""
    block: list[int] = []
    chosen: set[str] = set()
    links: dict[str, int] = {}
    best: list[tuple[int, int, str]] = []  # number of pairs with the chosen images, negative; order; name
    following: str | None = image if partners[image] else None
    while following is not None and len(block) < most and len(chosen) < MOST_IMAGES:
        chosen.add(following)
        for other in list(partners[following]):
            if other not in chosen:
                links[other] = links.get(other, 0) + 1
                heapq.heappush(best, (-links[other], order[other], other))
            elif len(block) < most:
                block.append(partners[following].pop(other))
                del partners[other][following]
        following = next(_popped(best, links, chosen), None)
    return block


def _popped(best: list[tuple[int, int, str]], links: dict[str, int], chosen: set[str]) -> Iterator[str]:
    while best:
        count, _, name = heapq.heappop(best)
        if name not in chosen and -count == links[name]:  # else it is out of date
            yield name
