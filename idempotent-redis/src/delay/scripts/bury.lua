-- Puts a delivery aside. 0: it is not this delivery's any more.
local m = ARGV[1]
if not mine(m, ARGV[2]) then return 0 end
bury(m, ARGV[4], ARGV[3])
return 1
