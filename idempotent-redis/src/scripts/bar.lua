#!lua flags=allow-oom
-- No fact may be put there for a while. ARGV: how long (ms). Answers: 0, then (index, 'E' and an error).
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
