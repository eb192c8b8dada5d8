-- Counts the time to settle anew, from now: member, deliveries of each. Of each 1, or 0 if it is not this delivery's any
-- more.
local said = {}
for at = 2, #ARGV, 2 do
  local ours = 0
  if mine(ARGV[at], ARGV[at + 1]) then
    call('ZADD', held, text(now + tonumber(ARGV[1]) - 1), ARGV[at])
    ours = 1
  end
  said[#said + 1] = ours
end
return said
