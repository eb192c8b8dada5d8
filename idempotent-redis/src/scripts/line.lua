#!lua flags=no-writes
-- The order tables of streams. Answers: now (µs), then (index, answer) for each stream that has one: 'R' and the line, 'E'
-- and an error.
local t = redis.call('TIME')
local out = {t[1] * 1000000 + t[2]}
for i = 1, #KEYS do
  local cur = redis.pcall('GET', KEYS[i])
  if cur then
    out[#out + 1] = i
    out[#out + 1] = type(cur) == 'table' and 'E' .. cur.err or 'R' .. cur
  end
end
return out
