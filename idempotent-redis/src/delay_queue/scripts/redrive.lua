-- Puts dead letters back as first attempts with one more death, due now. Returns how many existed.
local back = 0
for at = 1, #ARGV do
  local m = ARGV[at]
  if call('ZSCORE', dead, m) then
    local s = read(m)
    local first, deaths = string.match(call('HGET', letter, m) or '', '^%d+ (%d+) %d+ (%d+) ')
    s[2], s[3], s[4], s[5], s[6] = 1, 0, tonumber(deaths or 1), tonumber(first or 0), ''
    write(m, s)
    call('ZADD', due, text(now - 1), m)
    call('ZREM', dead, m)
    call('HDEL', letter, m)
    back = back + 1
  end
end
wake(0)
return back
