-- Cancels a message by its name or member. Reply: 0, no such message; 1, cancelled; 2, in delivery.
local m = ARGV[1]
if ARGV[2] ~= '' then m = call('HGET', ids, ARGV[2]) end
if not m or call('ZSCORE', dead, m) then return 0 end
local value = call('HGET', msg, m)
if not value then return 0 end
local said = 1
if call('ZREM', held, m) == 1 then said = 2 end
local _, name = parts(value)
free({m}, {name})
call('ZREM', due, m)
call('ZREM', rank, m)
call('HDEL', state, m)
call('HDEL', msg, m)
return said
