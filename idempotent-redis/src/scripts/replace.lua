#!lua flags=allow-oom
-- Consuming becomes consumed, for records that are exactly as granted. ARGV: retention (ms, 0: forever), time for which a
-- granted record is valid (µs), then for each key the granted record and its consumed form. Reply: now (µs), or a list of
-- now and (index, answer) for each key that was not replaced: 'M', the record differs; 'E' and an error.
local A, K, pcall, sub = ARGV, KEYS, redis.pcall, string.sub
local t = redis.call('TIME')
local now, retain = t[1] * 1000000 + t[2], A[1]
-- In the form of fencing numbers. A granted record is valid if its number is higher than the first bound. A consumed
-- record must outlast the time at which the clock passes its number, so the number is at most the second bound.
local spent, latest = string.format('%016.0f', math.max(now - A[2], 0)), '9999999999999999'
if retain ~= '0' then latest = string.format('%016.0f', now + retain * 1000) end
local out, n

for i = 1, #K do
  local k, granted = K[i], A[2 * i + 1]
  local number = sub(granted, 3, 18)
  local r
  if pcall('GET', k) ~= granted or number <= spent or number > latest then r = 'M'
  else
    if retain == '0' then r = pcall('SET', k, A[2 * i + 2]) else r = pcall('SET', k, A[2 * i + 2], 'PX', retain) end
    r = r.err and 'E' .. r.err
  end
  if r then
    if not out then out, n = {now}, 1 end
    out[n + 1] = i
    out[n + 2] = r
    n = n + 2
  end
end
return out or now
