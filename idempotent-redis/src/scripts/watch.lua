#!lua flags=allow-oom
-- Requests a notification when held keys are settled. Reply: for each key 1 if it is held, otherwise 0.
local out = {}
for i = 1, #KEYS do
  local cur = redis.pcall('GETRANGE', KEYS[i], 0, 37)
  local held = type(cur) == 'string' and #cur == 38 and string.sub(cur, 1, 2) == '\129P'
  if held then redis.call('SETRANGE', KEYS[i], 37, string.char(string.byte(cur, 38) % 4 + 4)) end
  out[i] = held and 1 or 0
end
return out
