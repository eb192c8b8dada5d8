-- Sets the idle time of an entry so that other consumers find it after the delay, and stores its retry mark, if there is
-- one. Returns 0 if this consumer does not hold the entry. When memory is full, the server rejects only the first write of
-- a script, and this first write needs no memory.
if redis.replicate_commands then redis.replicate_commands() end
local stream, group, me, id = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
if not pending or pending[2] ~= me then return 0 end
redis.call('XCLAIM', stream, group, me, 0, id, 'IDLE', ARGV[4], 'RETRYCOUNT', pending[4], 'JUSTID')
if KEYS[2] then
  redis.call('HSET', KEYS[2], id, ARGV[5])
  redis.call('PEXPIRE', KEYS[2], ARGV[6])
end
return 1
