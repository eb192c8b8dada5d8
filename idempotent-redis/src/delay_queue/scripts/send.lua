-- Stores messages. Arguments of each: kind, time or priority, name, payload, whether the time may be past. Reply for
-- each: (0, empty, now) if its time is not in the future; (1, member, due time) if stored; (2, member, due time) if a
-- message with this name exists and is kept. Members are rising numbers, so that messages of equal rank keep the order
-- of sending. They follow the clock, so that none is used twice even if Redis has lost data.
local seq = math.max(now, tonumber(call('HGET', meta, 'seq') or 0) + 1)
call('HSET', meta, 'seq', text(seq + #ARGV / 5 - 1))

local earliest = 9000000000000000
local function keep(m, kind, given, name, payload, past)
  if past == '0' and given <= now then return 0, '', now end
  if name ~= '' then
    local there = call('HGET', ids, name)
    local value = there and call('HGET', msg, there)
    if value then
      -- A priority is not a time: the message is due now as long as it exists.
      if string.byte(there) == 112 then return 2, there, now end
      return 2, there, (parts(value))
    end
  end
  -- The due time or the priority.
  if kind == 'a' or kind == 'm' then given = now + given end
  call('HSET', msg, m, text(given) .. ' ' .. #name .. ' ' .. name .. payload)
  if name ~= '' then call('HSET', ids, name, m) end
  if kind == 'p' then
    call('ZADD', rank, -given, m)
    earliest = 0
    return 1, m, now
  end
  -- Due from this time on; a fixed time must have passed.
  local score = given
  if past == '1' then score = math.max(0, given - 1) end
  call('ZADD', due, text(score), m)
  earliest = math.min(earliest, score)
  return 1, m, given
end

local out = {}
for at = 1, #ARGV, 5 do
  local kind = ARGV[at]
  local m = kind .. string.format('%013x', seq)
  local came, member, when = keep(m, kind, tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  out[#out + 1], out[#out + 2], out[#out + 3] = came, member, text(when)
  seq = seq + 1
end
wake(earliest)
return out
