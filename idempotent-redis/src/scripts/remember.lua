#!lua
-- Keeps what is consumed for a tiered store, where nothing is. ARGV: how long (ms), then for each key the fact. Answers: 0,
-- then (index, answer) for each key where something was: 'N', or 'E' and an error.
local out = {0}
for i = 1, #KEYS do
  local r = redis.pcall('SET', KEYS[i], ARGV[i + 1], 'PX', ARGV[1], 'NX')
  if not r or r.err then
    out[#out + 1] = i
    out[#out + 1] = r and 'E' .. r.err or 'N'
  end
end
return out
