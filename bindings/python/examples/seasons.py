"""Weather of some years, as a notebook would look at it: written once, killed if you like, and read in ranges.

    python examples/seasons.py --out seasons.png

Each cell (`# %%`) can be run by itself in an editor that knows them.
"""

# %% A pool with two trees: measurements by time, and notes by day.
import argparse
import json
import math
import random
import tempfile
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import bristlecone

arguments = argparse.ArgumentParser(description="Weather of some years, in a pool.")
arguments.add_argument("--out", type=Path, default=Path("seasons.png"), help="where the picture goes")
arguments.add_argument("--pool", type=Path, help="where the pool is, and stays (default: a temporary one)")
given = arguments.parse_args()

folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
path = given.pool or Path(folder.name) / "weather.pool"
pool = bristlecone.open(path, create=True, max_bytes=256 << 20)
print(pool, "survives", pool.info()["survives"])

temperatures = pool.tree("temperatures", "i64", float)  # seconds since 1970 -> degrees
notes = pool.tree("notes", (str, int), codec=json)  # (station, day) -> any JSON value

# %% Five years of a fictitious station, an item an hour, in one call.
start = datetime(2020, 1, 1, tzinfo=timezone.utc)
hours = [start + timedelta(hours=hour) for hour in range(5 * 365 * 24)]
draw = random.Random(2020)


def degrees(hour: datetime) -> float:
    season = -math.cos(2 * math.pi * (hour.timetuple().tm_yday - 15) / 365)
    daytime = -math.cos(2 * math.pi * (hour.hour - 3) / 24)
    return 9 + 10 * season + 4 * daytime + draw.gauss(0, 2)


temperatures.put_many([int(hour.timestamp()) for hour in hours], map(degrees, hours))
notes["Ulm", date(2021, 2, 14).toordinal()] = {"snow": 23, "by": ["Ada", "Kurt"]}
notes["Ulm", date(2022, 7, 20).toordinal()] = {"storm": True}
print(f"{len(temperatures):,} temperatures, {len(notes)} notes")

# %% Ranges: one summer, the last days of the year before, all entries of a place.
summer = temperatures.items(
    int(datetime(2022, 6, 1, tzinfo=timezone.utc).timestamp()),
    int(datetime(2022, 9, 1, tzinfo=timezone.utc).timestamp()),
)
when, warmest = max(summer, key=lambda item: item[1])
print(f"the warmest hour of {len(summer):,}: {datetime.fromtimestamp(when, timezone.utc)}, {warmest:.1f} degrees")
for (station, day), note in notes.prefix(("Ulm",)):
    print(station, date.fromordinal(day), note)

# %% The same as arrays, and a picture, if NumPy and matplotlib are installed.
try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy
except ImportError as missing:
    print(f"no picture: {missing}")
else:
    times, values = temperatures.items().to_numpy()
    days = values[: len(values) // 24 * 24].reshape(-1, 24)
    dates = times[: len(times) // 24 * 24 : 24].astype("datetime64[s]")
    figure, axes = plt.subplots(figsize=(10, 4))
    axes.fill_between(dates, days.min(axis=1), days.max(axis=1), alpha=0.3, label="from night to noon")
    axes.plot(dates, numpy.convolve(days.mean(axis=1), numpy.ones(30) / 30, mode="same"), label="mean of 30 days")
    axes.set_ylabel("degrees")
    axes.legend()
    figure.tight_layout()
    figure.savefig(given.out)
    print(f"a picture of {len(values):,} values: {given.out}")

# %% Closed cleanly, so that the next open need not recover.
pool.close()
folder.cleanup()
