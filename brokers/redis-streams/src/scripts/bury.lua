-- Copies an entry to the dead letters and acknowledges it. Returns 0 if another consumer holds the entry; 2 if it is no
-- longer pending, e.g. after this script. Without fields, only resets the idle time of the consumer's own entry.
if redis.replicate_commands then redis.replicate_commands() end
local stream, dead, group, me, id = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
if not pending then return 2 end
if pending[2] ~= me then return 0 end
if #ARGV == 4 then
  redis.call('XCLAIM', stream, group, me, 0, id, 'JUSTID')
  return 1
end
-- When memory is full, the server rejects only the first write of a script, and this write needs no memory. So a
-- consumer can skip an entry that it cannot process.
redis.call('XCLAIM', stream, group, me, 0, id, 'JUSTID')
redis.call('XADD', dead, '*', unpack(ARGV, 5))
redis.call('XACK', stream, group, id)
if KEYS[3] then redis.call('HDEL', KEYS[3], id) end
if ARGV[4] == 'delete' then redis.call('XDEL', stream, id) end
return 1
