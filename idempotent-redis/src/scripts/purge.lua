#!lua flags=allow-oom
-- Removes records past their time whose number cannot be drawn again. ARGV: the most of them. Answers: how many.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local gone = 0
for i = 1, #KEYS do
  local cur = redis.pcall('GET', KEYS[i])
  if gone < ARGV[1] + 0 and type(cur) == 'string' and string.match(cur, '^\129[PVFD]') and #cur >= 80 then
    local till, kept = struct.unpack('>I7I7', cur, #cur - 46)
    local fence = tonumber(string.sub(cur, -26, -11))
    if fence and till + kept <= now and fence < now then gone = gone + redis.call('DEL', KEYS[i]) end
  end
end
return gone
