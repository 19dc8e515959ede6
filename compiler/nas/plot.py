"""plot.py LIMIT-MB < table > picture.svg: sweep.sh's "megabytes plain ours" as two lines, and
where memory ends."""
import sys

limit = float(sys.argv[1])
rows = [line.split() for line in sys.stdin]
series = {
    name: [(float(row[0]), float(row[column])) for row in rows if row[column] != "-"]
    for name, column in (("plain", 1), ("with the pass", 2))
}
WIDTH, HEIGHT, MARGIN = 640, 400, 60
most_x = max(x for points in series.values() for x, _ in points)
most_y = max(y for points in series.values() for _, y in points)


def at(x, y):
    """Where a point of the data lies on the picture."""
    return (MARGIN + x / most_x * (WIDTH - 2 * MARGIN),
            HEIGHT - MARGIN - y / most_y * (HEIGHT - 2 * MARGIN))


def text(x, y, words, anchor="middle"):
    print(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>')


print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
      f'font-family="sans-serif" font-size="12">')
print(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
left, bottom = at(0, 0)
right, top = at(most_x, most_y)
print(f'<path d="M{left},{top} V{bottom} H{right}" fill="none" stroke="black"/>')
edge, _ = at(limit, 0)
print(f'<path d="M{edge:.1f},{top} V{bottom}" stroke="gray" stroke-dasharray="4"/>')
text(edge, top - 6, "memory")
text((left + right) / 2, HEIGHT - 16, "keys, MB")
text(left - 8, top + 4, f"{most_y:.3g} s", "end")
text(left - 8, bottom + 4, "0", "end")
for x in (limit, most_x):
    text(at(x, 0)[0], bottom + 18, f"{x:.0f}")
for (name, points), colour in zip(series.items(), ("#c33", "#36c")):
    path = " L".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in points))
    print(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    x, y = at(*points[-1])
    text(x + 6, y - 6, f'<tspan fill="{colour}">{name}</tspan>', "end")
print("</svg>")
