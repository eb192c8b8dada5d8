-- Makes an entry look idle for so long that others find it after the wanted time. 0 if it is not this consumer's.
if redis.replicate_commands then redis.replicate_commands() end
local stream, group, me, id = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
if not pending or pending[2] ~= me then return 0 end
redis.call('XCLAIM', stream, group, me, 0, id, 'IDLE', ARGV[4], 'RETRYCOUNT', pending[4], 'JUSTID')
return 1
