-- Restarts the visibility timeout. Returns for each delivery 1, or 0 if it is no longer held.
although_full()
local members, numbers, states = named(2)
local tills = call('ZMSCORE', held, unpack(members))
local ours, places, told = ours_of(members, numbers, states, tills)
local till = text(now + tonumber(ARGV[1]) - 1)
for nth, m in ipairs(ours) do
  -- The state is written, because the end no longer determines the time of the delivery.
  write(m, of_held(m, tills[places[nth]]))
  call('ZADD', held, till, m)
end
return told
