#!lua
-- Stores facts of a tiered store under keys without a value. ARGV: retention (ms), then the fact for each key. Reply:
-- 0, then (index, answer) for each key with a value: 'N', or 'E' and an error.
local out = {0}
for i = 1, #KEYS do
  local r = redis.pcall('SET', KEYS[i], ARGV[i + 1], 'PX', ARGV[1], 'NX')
  if not r or r.err then
    out[#out + 1] = i
    out[#out + 1] = r and 'E' .. r.err or 'N'
  end
end
return out
