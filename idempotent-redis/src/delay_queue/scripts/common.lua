-- The beginning of all scripts of a slot. Times are µs by the server's clock; as scores they are exact until 2255.
if redis.replicate_commands then redis.replicate_commands() end
local due, rank, held, msg, state, ids, dead, letter, meta = unpack(KEYS)
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local function text(number) return string.format('%.0f', number) end

-- Lets all writes of a script pass when the server's memory is full: the server rejects only the first write, and this
-- one needs no memory. Used for settling, which must continue so that the queue can drain.
local function although_full() call('HDEL', meta, '') end

-- Wakes receivers that sleep until later than this.
local function wake(at)
  local waits = call('HGET', meta, 'waits')
  if waits and at < tonumber(waits) then
    call('HDEL', meta, 'waits')
    redis.pcall('PUBLISH', 'idempotent:due', string.match(due, '^(.*):due$'))
  end
end

-- Returns the state of a message: deliveries, attempt, used retries of the queue, deaths, first delivery time, last
-- reason. A state that another program wrote is that of a new message, so that it holds up no other message.
local function parse(kept)
  local taken, attempt, used, deaths, first, why = string.match(kept, '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  if not taken then return {0, 1, 0, 0, 0, ''} end
  local function small(number) return math.min(tonumber(number), 4000000000) end
  return {small(taken), small(attempt), small(used), small(deaths), math.min(tonumber(first), 9000000000000000), why}
end
local function written(s) return table.concat({s[1], s[2], s[3], s[4], text(s[5]), s[6]}, ' ') end
local function read(m) return parse(call('HGET', state, m) or '0 1 0 0 0 ') end
local function write(m, s) call('HSET', state, m, written(s)) end

-- Returns the due time or priority, the name in `ids`, and the start of the payload.
local function parts(value)
  local given, size, at = string.match(value, '^(%d+) (%d+) ()')
  if not given then return 17, '', 1 end
  size = tonumber(size)
  return tonumber(given), string.sub(value, at, at + size - 1), at + size
end
-- Frees the names of messages that still use them.
local function free(members, names)
  local asked, by, gone = {}, {}, {}
  for nth, m in ipairs(members) do
    if names[nth] ~= '' then asked[#asked + 1], by[#by + 1] = names[nth], m end
  end
  if #asked == 0 then return end
  for nth, m in ipairs(call('HMGET', ids, unpack(asked))) do
    if m == by[nth] then gone[#gone + 1] = asked[nth] end
  end
  if #gone > 0 then call('HDEL', ids, unpack(gone)) end
end

-- Returns the state of a message that is held until `till`. Without a stored state it is the first delivery, which
-- started the common timeout, `visible` in `meta`, earlier.
local function of_held(m, till)
  local kept = call('HGET', state, m)
  if kept then return parse(kept) end
  return {1, 1, 0, 0, till + 1 - (call('HGET', meta, 'visible') or 0), ''}
end
-- Returns whether the delivery with this number holds the message.
local function mine(m, taken)
  local till = call('ZSCORE', held, m)
  if not till then return false end
  local s = of_held(m, till)
  if s[1] ~= tonumber(taken) then return false end
  return s
end

-- Parses arguments: a count, the numbers in a row or an empty text if each is 1, then the members. Returns the members,
-- the numbers, their states, and whether all are first deliveries, none of which has a state or has lost it.
local function named(from)
  local members, numbers, states = {unpack(ARGV, from + 2, from + 1 + ARGV[from])}, {}, {}
  for number in string.gmatch(ARGV[from + 1], '%d+') do numbers[#numbers + 1] = number end
  local first = #numbers == 0
  if #members > 0 and call('EXISTS', state) == 1 then
    states = call('HMGET', state, unpack(members))
    for nth = 1, #members do
      if states[nth] then first = false end
    end
  end
  return members, numbers, states, first
end

-- Returns the members that are still held by these deliveries, their indices, and for each 1, or 0 if it is no longer
-- held. `there`: whether any delivery holds each member.
local function ours_of(members, numbers, states, there)
  local ours, places, told, seen = {}, {}, {}, {}
  for nth, m in ipairs(members) do
    told[nth] = '0'
    if there[nth] and string.match(states[nth] or '1', '^%d+') == (numbers[nth] or '1') and not seen[m] then
      ours[#ours + 1] = m
      places[#ours] = nth
      told[nth] = '1'
      seen[m] = true
    end
  end
  return ours, places, table.concat(told)
end

-- Ends deliveries. The members are followed by the names that they still use, or empty texts.
local function finish(from)
  local members, numbers, states, first = named(from)
  if #members == 0 then return '' end
  local at = from + 1 + #members
  local ours, names, told = members, {unpack(ARGV, at + 1, at + #members)}, string.rep('1', #members)
  local there = members
  if first then
    -- A delivery without a state holds its message as long as the message exists.
    if call('ZREM', held, unpack(members)) < #members then there = call('HMGET', msg, unpack(members)) end
  else
    there = call('ZMSCORE', held, unpack(members))
  end
  if there ~= members then
    local places
    ours, places, told = ours_of(members, numbers, states, there)
    if #ours == 0 then return told end
    for nth, place in ipairs(places) do names[nth] = ARGV[at + place] end
  end
  if not first then
    call('ZREM', held, unpack(ours))
    call('HDEL', state, unpack(ours))
  end
  -- Another message can only use the name if this one was dead and has a state, or if its body was lost.
  if call('HDEL', msg, unpack(ours)) < #ours or not first then
    free(ours, names)
  else
    call('HDEL', ids, unpack(names, 1, #ours))
  end
  return told
end

-- Retries rank after all new messages, by their remaining retries.
local function left(s, most) return math.min(16, math.max(0, most - s[3])) end
local function place(m, s, most)
  local score = -left(s, most)
  if s[2] == 1 and s[3] == 0 then score = -parts(call('HGET', msg, m) or '17 0 ') end
  call('ZADD', rank, score, m)
end

local function bury(m, written, name)
  call('ZADD', dead, text(now), m)
  call('HSET', letter, m, written)
  call('ZREM', held, m)
  free({m}, {name})
end
-- Returns whether no retries are left, including the delivery that just ended.
local function exhausted(m, s)
  write(m, s)
  local _, name = parts(call('HGET', msg, m) or '0 0 ')
  local counts = table.concat({s[3], text(s[5]), text(now), s[4] + 1}, ' ')
  bury(m, counts .. ' 0:all retries are used up: ' .. s[6], name)
end
