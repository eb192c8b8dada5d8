-- Commits the deliveries after the first four arguments, as `done` does, and delivers due messages. Returns {now, next
-- poll or -1, number that just died, result of `done`, then up to two groups of: members in a row, their states or an
-- empty text if all are first deliveries, stored values}.
although_full()
local room, visible, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local passed = '(' .. text(now)
local died, out = 0, {text(now), '-1', 0, finish(5)}

-- Expired deliveries.
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

-- First deliveries have no state if all held messages without a state have the same timeout.
local all = call('HGET', meta, 'visible')
if all ~= ARGV[2] and call('EXISTS', held) == 0 then
  call('HSET', meta, 'visible', ARGV[2])
  all = ARGV[2]
end

local count, till = 0, text(now + visible - 1)
-- One command of each kind for all members.
local function hand(members)
  if #members == 0 then return end
  local values, states, row = call('HMGET', msg, unpack(members)), '', table.concat(members, ' ')
  if all ~= ARGV[2] or call('EXISTS', state) == 1 then states = call('HMGET', state, unpack(members)) end
  local holds, last, writes, gone = {}, 0, {}, {}
  -- Last first: a small set is a list, which is searched from its front.
  for nth = #members, 1, -1 do
    if values[nth] then
      holds[last + 1], holds[last + 2] = till, members[nth]
      last = last + 2
    else
      -- The body was evicted, so there is nothing to deliver.
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
  -- Later messages are not merged into these.
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
  -- Retries rank again.
  if string.find(table.concat(ready, ' '), 'p', 1, true) then
    timed = {}
    for _, m in ipairs(ready) do
      if string.byte(m) == 112 then place(m, read(m), most) else timed[#timed + 1] = m end
    end
  end
  hand(timed)
  looked = looked + #ready
  -- They have the lowest ranks.
  if #ready > 0 then call('ZREMRANGEBYRANK', due, 0, #ready - 1) end
until #ready == 0 or count >= room or looked >= 256
if count < room then
  ready = call('ZRANGE', rank, 0, room - count - 1)
  hand(ready)
  if #ready > 0 then call('ZREMRANGEBYRANK', rank, 0, #ready - 1) end
end

-- No message is ready: the receiver sleeps until then, unless it is notified earlier.
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
