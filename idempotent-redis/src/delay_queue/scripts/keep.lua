-- Counts the time to settle anew, from now. Of each delivery 1, or 0 if it is not this delivery's any more.
although_full()
local members, numbers, states = named(2)
local tills = call('ZMSCORE', held, unpack(members))
local ours, places, told = ours_of(members, numbers, states, tills)
local till = text(now + tonumber(ARGV[1]) - 1)
for nth, m in ipairs(ours) do
  -- By the time that it is held until nobody can tell any more when it was delivered.
  write(m, of_held(m, tills[places[nth]]))
  call('ZADD', held, till, m)
end
return told
