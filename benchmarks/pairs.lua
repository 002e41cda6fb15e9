-- For wrk: each connection takes and releases leases over its names, one after the other.
-- Give it as many threads as connections, so that each thread has one.
-- With the argument `health` they ask for /healthz instead, which asks no database.
local threads = {}
local NAMES = 12

function setup(thread)
  table.insert(threads, thread)
  thread:set("id", #threads)
end

function init(arguments)
  health = arguments[1] == "health"
  run = os.time() -- the last leases of a run are not released: the next one has other names
  math.randomseed(run + id * 7919)
  sent, answered, wrong, name, token = 0, 0, 0, "", ""
end

function request()
  if health then return wrk.format("GET", "/healthz") end
  sent = sent + 1
  if sent % 2 == 1 then
    local digits = math.random(0, 0x7fffffff)
    token = string.format("%08x%08x%08x%08x", digits, math.random(0, 0x7fffffff), sent, id)
    name = "/v1/leases/" .. run .. "-" .. id .. "-" .. (sent - 1) / 2 % NAMES
    local body = '{"token":"' .. token .. '","ttl":30,"owner":"wrk"}'
    return wrk.format("PUT", name, {["Content-Type"] = "application/json"}, body)
  end
  return wrk.format("DELETE", name, {["Lock-Token"] = token})
end

function response(status)
  answered = answered + 1
  -- Of one thread wrk has asked for a first request, to look at it, and sends the second.
  local right = health and status == 200 or status == 201 or status == 204
  if answered > 1 and not right then wrong = wrong + 1 end
end

function done(summary, latency)
  local errors = 0
  for _, thread in ipairs(threads) do errors = errors + thread:get("wrong") end
  local p50, p99 = latency:percentile(50), latency:percentile(99)
  print(string.format("requests=%d wrong=%d p50=%d p99=%d", summary.requests, errors, p50, p99))
end
