-- Ends deliveries for good: member, deliveries, name of each. Of each 1, or 0 if it is not this delivery's any more.
local said = {}
for at = 1, #ARGV, 3 do
  local m, ours = ARGV[at], 0
  if mine(m, ARGV[at + 1]) then
    call('ZREM', held, m)
    call('HDEL', state, m)
    call('HDEL', msg, m)
    free(m, ARGV[at + 2])
    ours = 1
  end
  said[#said + 1] = ours
end
return said
