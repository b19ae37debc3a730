"""python -m matchkernel"""

from matchkernel.cli.entry import main

main()
