#!lua flags=no-writes
-- Reads the facts of a tiered store. Reply: 0, then (index, answer) for each key with a value: 'R' and the value, 'E'
-- and an error.
local out = {0}
for i = 1, #KEYS do
  local cur = redis.pcall('GET', KEYS[i])
  if cur then
    out[#out + 1] = i
    out[#out + 1] = type(cur) == 'table' and 'E' .. cur.err or 'R' .. cur
  end
end
return out
