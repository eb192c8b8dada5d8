#!lua flags=allow-oom
-- Blocks facts under these keys for a while. ARGV: duration (ms). Reply: 0, then (index, 'E' and an error).
local pcall = redis.pcall
local out = {0}
for i = 1, #KEYS do
  local k = KEYS[i]
  local r = pcall('SET', k, '\129B', 'PX', ARGV[1])
  if r.err then
    out[#out + 1] = i
    out[#out + 1] = 'E' .. r.err
  end
end
return out
