#!/usr/bin/env bash
# Opens a page of `bristlecone-lab reproduce` in a browser without a window, on a desk and on a phone, in light and in dark:
# every plot must show data, tables must sort, nothing may be wider than the screen, and the console stays empty.
# `.ci/report.sh DIR` looks at DIR/report.html, and leaves pictures in DIR.
set -euo pipefail
folder=$(cd "$1" && pwd)
browser=""
for name in chromium google-chrome; do
    if command -v "$name" >/dev/null; then browser=$name; break; fi
done
if [ -z "$browser" ]; then
    echo "no browser is installed: the page is not looked at"
    exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
show() { "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile" "$@" 2>"$scratch/log"; }

# The page with a script before its own, which hears of errors, and one behind it, which looks.
looking() {
    awk -v head="$scratch/head.html" -v foot="$scratch/foot.html" '
        /<head>/ { print; while ((getline line < head) > 0) print line; next }
        /<\/body>/ { while ((getline line < foot) > 0) print line }
        { print }' "$folder/report.html"
}
cat >"$scratch/head.html" <<'HEAD'
<script>const errors = []; addEventListener("error", (event) => errors.push(event.message));</script>
HEAD
cat >"$scratch/foot.html" <<'FOOT'
<script>
addEventListener("load", () => {
  const wrong = [...errors];
  const plots = [...document.querySelectorAll("svg.plot")];
  if (plots.length === 0) wrong.push("there is no plot");
  for (const plot of plots) {
    const name = plot.getAttribute("aria-label");
    const data = [...plot.querySelectorAll(".data")];
    const around = plot.getBoundingClientRect();
    const seen = data.filter((mark) => {
      const box = mark.getBoundingClientRect();
      return box.width + box.height > 0 && box.left >= around.left - 1 && box.right <= around.right + 1
        && box.top >= around.top - 1 && box.bottom <= around.bottom + 1;
    });
    if (data.length === 0 || seen.length < data.length) wrong.push(`${name}: ${seen.length} of ${data.length} marks show`);
    for (const text of plot.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (box.left < around.left - 2 || box.right > around.right + 2) wrong.push(`${name}: ${text.textContent} is cut off`);
    }
    if (/NaN|Infinity|undefined/.test(plot.outerHTML)) wrong.push(`${name}: a place is no number`);
  }
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const table of document.querySelectorAll("table.sortable")) {
    const column = 3;
    const values = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[column].dataset.sort));
    const ascends = (list) => list.every((value, at) => at === 0 || list[at - 1] <= value);
    const head = table.querySelectorAll("th")[column];
    head.firstElementChild.click();
    if (!ascends(values())) wrong.push("a table does not sort");
    head.firstElementChild.click();
    if (!ascends(values().reverse())) wrong.push("a table does not sort the other way round");
  }
  const page = document.scrollingElement;
  if (page.scrollWidth > innerWidth) wrong.push(`the page is ${page.scrollWidth} wide on a screen of ${innerWidth}`);
  document.title = wrong.length === 0 ? `looked at ${plots.length} plots` : `wrong: ${wrong.slice(0, 5).join("; ")}`;
});
</script>
FOOT
looking >"$scratch/looking.html"
cp "$folder/report.html" "$scratch/report.html"

for screen in 1280,900 390,844; do
    title=$(show --window-size="$screen" --virtual-time-budget=10000 --dump-dom --enable-logging=stderr "file://$scratch/looking.html" \
        | sed -n 's:^<title>\(.*\)</title>.*:\1:p' | head -n 1)
    echo "screen of $screen: $title"
    case $title in "looked at "*) ;; *) exit 1 ;; esac
    if grep "CONSOLE" "$scratch/log"; then exit 1; fi
done
show --window-size=1280,2400 --screenshot="$folder/light.png" "file://$scratch/report.html"
show --window-size=1280,2400 --blink-settings=preferredColorScheme=0 --screenshot="$folder/dark.png" "file://$scratch/report.html"
show --window-size=390,2400 --screenshot="$folder/narrow.png" "file://$scratch/report.html"
