# Reads `go test -v` and prints what a person wants of it: each package's result,
# each skip with its reason, tests that take long, and of a test that failed
# everything that it said.
#
#   go test -v ... | awk -f report.awk
/^=== (RUN|NAME|CONT|PAUSE) / {
  at = $3
  next
}
/^ *--- PASS: / {
  passed++
  delete said[$3]
  took = substr($4, 2) + 0
  if ($0 ~ /^---/ && took >= 10) {
    printf "passed\t%s after %d s\n", $3, took
    fflush()
  }
  next
}
/^ *--- SKIP: / {
  reason = last[$3]
  sub(/^ *[A-Za-z0-9_]+\.go:[0-9]+: /, "", reason)
  printf "skipped\t%s: %s\n", $3, reason
  fflush()
  next
}
/^ *--- FAIL: / {
  printf "%s%s\n", said[$3], $0
  fflush()
  next
}
/^(panic:|fatal error:|WARNING: DATA RACE)/ { raw = 1 }
/^(ok|FAIL|\?|---)[ \t]/ {
  printf "%s%s\n", $0, ($1 == "ok" ? "\t" passed " passed" : "")
  fflush()
  passed = 0
  raw = 0
  split("", said)
  split("", last)
  next
}
raw {
  print
  next
}
{
  last[at] = $0
  if (length(said[at]) < 200000) said[at] = said[at] $0 "\n"
}
