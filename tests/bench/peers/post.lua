-- wrk script: post the same inference request over and over. Arguments: body file, length of the JSON part of a body with
-- binary tensors, or 0 for a body that is JSON throughout.
function init(args)
  local file = assert(io.open(args[1], "rb"))
  wrk.method = "POST"
  wrk.body = file:read("*all")
  file:close()
  if args[2] == "0" then
    wrk.headers["Content-Type"] = "application/json"
  else
    wrk.headers["Content-Type"] = "application/octet-stream"
    wrk.headers["Inference-Header-Content-Length"] = args[2]
  end
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d\n", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.timeout + e.status))
  for _, p in ipairs({50, 75, 90, 95, 99, 99.9}) do
    io.write(string.format("PERCENTILE %g %d\n", p, latency:percentile(p)))
  end
end
