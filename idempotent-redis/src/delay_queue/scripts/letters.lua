-- Lists dead letters after a position, oldest first, at least as many as requested if they exist. Returns for each:
-- member, time of death, state, letter, stored value.
local from, behind, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local out, offset, some = {}, 0, nil
repeat
  some = call('ZRANGEBYSCORE', dead, from, '+inf', 'WITHSCORES', 'LIMIT', offset, most)
  for at = 1, #some, 2 do
    local m, died = some[at], some[at + 1]
    if tonumber(died) > tonumber(from) or m > behind then
      for _, part in ipairs({m, died, call('HGET', state, m) or '', call('HGET', letter, m) or '', call('HGET', msg, m) or ''}) do
        out[#out + 1] = part
      end
    end
  end
  offset = offset + most
until #some == 0 or #out >= most * 5
return out
