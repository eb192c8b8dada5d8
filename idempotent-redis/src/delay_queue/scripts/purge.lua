-- Removes up to a number of dead letters, or with `all` everything but the number sequence. Returns the count.
local count = 0
if ARGV[1] == 'all' then
  count = call('HLEN', msg)
  call('UNLINK', due, rank, held, msg, state, ids, dead, letter)
  call('HDEL', meta, 'waits')
  return count
end
for _, m in ipairs(call('ZRANGE', dead, 0, tonumber(ARGV[1]) - 1)) do
  call('ZREM', dead, m)
  call('HDEL', letter, m)
  call('HDEL', state, m)
  call('HDEL', msg, m)
  count = count + 1
end
return count
