#!lua flags=no-writes
-- Reads records. Reply: now (µs), then for each key its value or false, and its expiry time (ms; -1: never).
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local out = {now}
local function ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
for i = 1, #KEYS do
  local k = KEYS[i]
  local cur, ends = redis.pcall('GET', k), redis.pcall('PEXPIRETIME', k)
  -- Redis 6.2 returns only the remaining time. The sum is exact unless a ms ends in between.
  if type(ends) == 'table' then
    local before, after = nil, ms()
    repeat
      before = after
      ends = redis.call('PTTL', k)
      after = ms()
    until before == after
    if ends >= 0 then ends = ends + after end
  end
  out[2 * i] = type(cur) == 'table' and 'E' .. cur.err or cur and 'R' .. cur
  out[2 * i + 1] = ends
end
return out
