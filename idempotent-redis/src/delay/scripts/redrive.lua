-- Puts dead letters back as first attempts that have died, to be delivered now. Says how many were there.
local most, back = tonumber(ARGV[1]), 0
for at = 2, #ARGV do
  local m = ARGV[at]
  if call('ZSCORE', dead, m) then
    local s = read(m)
    local first, deaths = string.match(call('HGET', letter, m) or '', '^%d+ (%d+) %d+ (%d+) ')
    s[2], s[3], s[4], s[5], s[6] = 1, 0, tonumber(deaths or 1), tonumber(first or 0), ''
    write(m, s)
    if string.sub(m, 1, 1) == 'p' then place(m, s, most) else call('ZADD', due, text(now - 1), m) end
    call('ZREM', dead, m)
    call('HDEL', letter, m)
    back = back + 1
  end
end
if back > 0 then wake(0) end
return back
