-- Keeps messages: kind, time or priority, name, payload, whether a time may be past, of each. Of each three answers:
-- 0, nothing, now: its time is not in the future; 1, member, when: kept; 2, member, when: one of this name is kept already,
-- and stands.
-- Numbers that rise: of what ranks equally the first comes first. By the clock, so that none is used twice even when
-- Redis has lost what it knew.
local seq = math.max(now, tonumber(call('HGET', meta, 'seq') or 0) + 1)
call('HSET', meta, 'seq', text(seq + #ARGV / 5 - 1))

local earliest = 9000000000000000
local function keep(m, kind, given, name, payload, past)
  if past == '0' and given <= now then return 0, '', now end
  if name ~= '' then
    local there = call('HGET', ids, name)
    local value = there and call('HGET', msg, there)
    if value then
      -- A priority is no time: it is due now, as long as it is there.
      if string.byte(there) == 112 then return 2, there, now end
      return 2, there, (parts(value))
    end
  end
  -- When it is due, or its priority.
  if kind == 'a' or kind == 'm' then given = now + given end
  call('HSET', msg, m, text(given) .. ' ' .. #name .. ' ' .. name .. payload)
  if name ~= '' then call('HSET', ids, name, m) end
  if kind == 'p' then
    call('ZADD', rank, -given, m)
    earliest = 0
    return 1, m, now
  end
  -- Due from that time on; a fixed time has to be past.
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
