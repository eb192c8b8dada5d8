-- Dead-letters a delivery. Reply: 0, the delivery is no longer held.
although_full()
local m = ARGV[1]
local s = mine(m, ARGV[2])
if not s then return 0 end
write(m, s)
bury(m, ARGV[4], ARGV[3])
return 1
