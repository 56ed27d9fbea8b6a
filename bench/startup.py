"""How long a person waits for `inferometer --help`.

python bench/startup.py [--times 10] [--json]
"""

from statistics import median

from _common import counted, inferometer, parser, print_rows


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--times", type=int, default=10)
    chosen = options.parse_args()
    counted(inferometer("--help"))  # fills the disk cache
    made = [counted(inferometer("--help")) for _ in range(chosen.times)]
    walls = [each.wall_s for each in made]
    print_rows(
        [
            {
                "command": "inferometer --help",
                "times": chosen.times,
                "median s": median(walls),
                "min s": min(walls),
                "max s": max(walls),
                "cpu s": median(each.cpu_s for each in made),
            }
        ],
        chosen.json,
    )


if __name__ == "__main__":
    main()
