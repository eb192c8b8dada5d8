-- Removes a dead letter that died at a time. Returns how many existed.
local m = ARGV[1]
local died = call('ZSCORE', dead, m)
if tonumber(died) ~= tonumber(ARGV[2]) then return 0 end
call('ZREM', dead, m)
call('HDEL', letter, m)
call('HDEL', state, m)
call('HDEL', msg, m)
return 1
