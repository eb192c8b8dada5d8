#!lua flags=allow-oom
-- Removes expired records whose number cannot be granted again. Reply: for each key 1 if it is removed, otherwise 0.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local out = {}
for i = 1, #KEYS do
  local cur = redis.pcall('GET', KEYS[i])
  out[i] = 0
  if type(cur) == 'string' and string.match(cur, '^\129[PVFD]') and #cur >= 80 then
    local till, kept = struct.unpack('>I7I7', cur, #cur - 27)
    local fence = tonumber(string.sub(cur, 3, 18))
    if fence and tonumber(string.sub(cur, -7) .. string.sub(cur, 19, 21)) and till + kept <= now and fence < now then out[i] = redis.call('DEL', KEYS[i]) end
  end
end
return out
