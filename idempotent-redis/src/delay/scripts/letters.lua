-- Dead letters behind a place, the oldest first: of each member, when it died, state, letter, what is kept.
local from, behind, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local out, offset = {}, 0
while #out < most * 5 do
  local some = call('ZRANGEBYSCORE', dead, from, '+inf', 'WITHSCORES', 'LIMIT', offset, most)
  if #some == 0 then break end
  for at = 1, #some, 2 do
    local m, died = some[at], some[at + 1]
    if (tonumber(died) > tonumber(from) or m > behind) and #out < most * 5 then
      for _, part in ipairs({m, died, call('HGET', state, m) or '', call('HGET', letter, m) or '', call('HGET', msg, m) or ''}) do
        out[#out + 1] = part
      end
    end
  end
  offset = offset + most
end
return out
