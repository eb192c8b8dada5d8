-- Commits what is named behind the first four arguments, as `done` does, and hands out what is due: {now, when to ask again
-- or -1, how many died just now, what `done` says, then of some, and of more: their members in a row, their states or
-- nothing where all of these are first deliveries, what is kept of each}.
although_full()
local room, visible, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local passed = '(' .. text(now)
local died, out = 0, {text(now), '-1', 0, finish(5)}

-- Nobody settled these in time.
for _, m in ipairs(call('ZRANGEBYSCORE', held, '-inf', passed, 'LIMIT', 0, 100)) do
  local till = call('ZSCORE', held, m)
  local s = of_held(m, till)
  s[3], s[6] = s[3] + 1, 'nobody settled it in time'
  if s[3] > most then
    exhausted(m, s)
    died = died + 1
  else
    write(m, s)
    call('ZADD', due, till, m)
    call('ZREM', held, m)
  end
end

-- First deliveries have no state of their own where all that are held without one were given the same time.
local all = call('HGET', meta, 'visible')
if all ~= ARGV[2] and call('EXISTS', held) == 0 then
  call('HSET', meta, 'visible', ARGV[2])
  all = ARGV[2]
end

local count, till = 0, text(now + visible - 1)
-- All of them by one command of each kind.
local function hand(members)
  if #members == 0 then return end
  local values, states, row = call('HMGET', msg, unpack(members)), '', table.concat(members, ' ')
  if all ~= ARGV[2] or call('EXISTS', state) == 1 then states = call('HMGET', state, unpack(members)) end
  local holds, last, writes, gone = {}, 0, {}, {}
  -- The last first: a small set is a list, which is searched from its front.
  for nth = #members, 1, -1 do
    if values[nth] then
      holds[last + 1], holds[last + 2] = till, members[nth]
      last = last + 2
    else
      -- Its body is gone: there is nothing to hand out.
      gone[#gone + 1] = members[nth]
    end
  end
  if states ~= '' then
    for nth, m in ipairs(members) do
      if states[nth] or all ~= ARGV[2] then
        local s = parse(states[nth] or '0 1 0 0 0 ')
        s[1] = s[1] + 1
        if s[5] == 0 then s[5] = now end
        states[nth] = written(s)
        writes[#writes + 1] = m
        writes[#writes + 1] = states[nth]
      end
    end
  end
  -- What is sent from now on is not merged into these.
  if string.find(row, 'm', 1, true) then
    local merged, names = {}, {}
    for nth, m in ipairs(members) do
      if string.byte(m) == 109 then
        local _, name = parts(values[nth] or '0 0 ')
        merged[#merged + 1] = m
        names[#merged] = name
      end
    end
    free(merged, names)
  end
  if last > 0 then call('ZADD', held, unpack(holds)) end
  if #writes > 0 then call('HSET', state, unpack(writes)) end
  if #gone > 0 then call('HDEL', state, unpack(gone)) end
  count = count + last / 2
  out[#out + 1], out[#out + 2], out[#out + 3] = row, states, values
end

local looked, ready = 0, nil
repeat
  ready = call('ZRANGEBYSCORE', due, '-inf', passed, 'LIMIT', 0, room - count)
  local timed = ready
  -- What has come back ranks again.
  if string.find(table.concat(ready, ' '), 'p', 1, true) then
    timed = {}
    for _, m in ipairs(ready) do
      if string.byte(m) == 112 then place(m, read(m), most) else timed[#timed + 1] = m end
    end
  end
  hand(timed)
  looked = looked + #ready
  -- They stand lowest.
  if #ready > 0 then call('ZREMRANGEBYRANK', due, 0, #ready - 1) end
until #ready == 0 or count >= room or looked >= 256
if count < room then
  ready = call('ZRANGE', rank, 0, room - count - 1)
  hand(ready)
  if #ready > 0 then call('ZREMRANGEBYRANK', rank, 0, #ready - 1) end
end

-- Nothing is left that is ready: who asks sleeps until then, unless it is told of something earlier.
if count < room then
  local again = -1
  for _, key in ipairs({due, held}) do
    local first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
    if first and (again < 0 or first + 1 < again) then again = first + 1 end
  end
  if ARGV[4] == '1' then
    local waits = again
    if again < 0 then waits = 9000000000000000 end
    call('HSET', meta, 'waits', text(waits))
  end
  out[2] = text(again)
end
out[3] = died
return out
