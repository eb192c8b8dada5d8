-- Keeps a message. {0, now}: its time is not in the future; {1, member, when}: kept; {2, member, when}: one of this name
-- is kept already, and stands.
local kind, given, name, payload, past = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
if past == '0' and given <= now then return {0, text(now)} end
if name ~= '' then
  local there = call('HGET', ids, name)
  local value = there and call('HGET', msg, there)
  if value then
    return {2, there, text((parts(value)))}
  end
end
-- When it is due, or its priority.
if kind == 'a' or kind == 'm' then given = now + given end
-- A number that rises: of what ranks equally the first comes first. By the clock, so that none is used twice even when
-- Redis has lost what it knew.
local seq = math.max(now, tonumber(call('HGET', meta, 'seq') or 0) + 1)
call('HSET', meta, 'seq', text(seq))
local m = kind .. string.format('%013x', seq)
call('HSET', msg, m, text(given) .. ' ' .. #name .. ' ' .. name .. payload)
if name ~= '' then call('HSET', ids, name, m) end
if kind == 'p' then
  call('ZADD', rank, -given, m)
  wake(0)
  return {1, m, text(now)}
end
-- Due from that time on; a fixed time has to be past.
local score = given
if past == '1' then score = math.max(0, given - 1) end
call('ZADD', due, text(score), m)
wake(score)
return {1, m, text(given)}
