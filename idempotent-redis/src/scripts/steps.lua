#!lua flags=allow-oom
-- Reads the steps of runs. Each run has two keys: the record and its steps. ARGV: minimum retention of steps from now
-- on (ms), then for each run the guard (see renewals). Reply: now (µs), then (index, answer) for each: 'S' and the
-- entries, 'R' and the unchanged record, 'A' for none, 'X' if the key holds something else, 'E' and an error.
local A, K, pcall, sub = ARGV, KEYS, redis.pcall, string.sub
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local keep = A[1] + 0
local out = {now}

local function begun(cur, g)
  if sub(cur, 1, 2) ~= '\129P' or #cur < 80 or sub(cur, 22, 37) ~= sub(g, -17, -2) then return end
  if #g == 38 and sub(cur, 3, 18) ~= sub(g, 3, 18) then return end
  local updated, till, kept = struct.unpack('>I7I7I7', cur, #cur - 34)
  if till - updated > 2678400000000 or till + kept <= now then return end
  return sub(cur, -42, -36), till + kept
end

local function steps(i)
  local k, cur = K[2 * i], pcall('GET', K[2 * i - 1])
  if not cur then return 'A' end
  if cur.err then return 'E' .. cur.err end
  local first, ends = begun(cur, A[i + 1])
  if not first then return 'R' .. cur end
  local steps = pcall('GET', k)
  if not steps then return 'S' end
  if steps.err then return 'E' .. steps.err end
  if sub(steps, 1, 2) ~= '\129J' then return 'X' end
  if sub(steps, 3, 9) ~= first then return 'S' end
  -- A run that only replays its steps must not outlive them.
  local ms = string.format('%.0f', math.max(math.ceil((ends - now) / 1000), keep))
  local r = pcall('SET', k, steps, 'PX', ms)
  if r.err then return 'E' .. r.err end
  return 'S' .. sub(steps, 10)
end

for i = 1, #K / 2 do
  out[2 * i] = i
  out[2 * i + 1] = steps(i)
end
return out
