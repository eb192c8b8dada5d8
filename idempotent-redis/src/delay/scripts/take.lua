-- Hands out what is due: {now, when to ask again or -1, how many died just now, then of each: member, deliveries, attempt,
-- used, deaths, first, why, what is kept}.
local room, visible, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local passed = '(' .. text(now)
local died, out = 0, {}

-- Nobody settled these in time.
for _, m in ipairs(call('ZRANGEBYSCORE', held, '-inf', passed, 'LIMIT', 0, 100)) do
  local s = read(m)
  s[3], s[6] = s[3] + 1, 'nobody settled it in time'
  if s[3] > most then
    exhausted(m, s)
    died = died + 1
  else
    write(m, s)
    call('ZADD', due, call('ZSCORE', held, m), m)
    call('ZREM', held, m)
  end
end

local count = 0
local function hand(m)
  local value = call('HGET', msg, m)
  -- Its body is gone: there is nothing to hand out.
  if not value then return call('HDEL', state, m) end
  local s = read(m)
  s[1] = s[1] + 1
  if s[5] == 0 then s[5] = now end
  call('ZADD', held, text(now + visible - 1), m)
  write(m, s)
  -- What is sent from now on is not merged into it.
  if string.sub(m, 1, 1) == 'm' then
    local _, name = parts(value)
    free(m, name)
  end
  for _, part in ipairs({m, s[1], s[2], s[3], s[4], text(s[5]), s[6], value}) do out[#out + 1] = part end
  count = count + 1
end

local looked, ready = 0, nil
repeat
  ready = call('ZRANGEBYSCORE', due, '-inf', passed, 'LIMIT', 0, room - count)
  for _, m in ipairs(ready) do
    looked = looked + 1
    -- What has come back ranks again.
    if string.sub(m, 1, 1) == 'p' then place(m, read(m), most) else hand(m) end
  end
  if #ready > 0 then call('ZREM', due, unpack(ready)) end
until #ready == 0 or count >= room or looked >= 256
if count < room then
  local ready = call('ZRANGE', rank, 0, room - count - 1)
  for _, m in ipairs(ready) do hand(m) end
  if #ready > 0 then call('ZREM', rank, unpack(ready)) end
end

local again = -1
for _, key in ipairs({due, held}) do
  local first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if first and (again < 0 or first + 1 < again) then again = first + 1 end
end
-- Nothing is left that is ready: who asks sleeps until then, unless it is told of something earlier.
if count < room and ARGV[4] == '1' then
  local waits = again
  if again < 0 then waits = 9000000000000000 end
  call('HSET', meta, 'waits', text(waits))
end
return {text(now), text(again), died, unpack(out)}
