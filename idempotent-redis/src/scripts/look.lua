#!lua flags=no-writes
-- What is there. Answers: now (µs), then for each key its value or false, and its time to live (ms; -1: for ever).
local t = redis.call('TIME')
local out = {t[1] * 1000000 + t[2]}
for i = 1, #KEYS do
  local cur = redis.pcall('GET', KEYS[i])
  out[2 * i] = type(cur) == 'table' and 'E' .. cur.err or cur and 'R' .. cur
  out[2 * i + 1] = redis.call('PTTL', KEYS[i])
end
return out
