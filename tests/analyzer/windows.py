"""How long perf_analyzer measures."""

# Any three windows will do: the figures are not tested. Three have at least 200 requests, at 100 a second too. With `--request-count`, about
# one run in 50 next to other programs never ends: perf_analyzer waits for the last of the answers although all have reached it.
IN_WINDOWS = ["--measurement-interval", "700", "--stability-percentage", "999", "--max-trials", "10"]
