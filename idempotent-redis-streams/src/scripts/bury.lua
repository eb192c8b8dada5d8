-- Copies an entry to the dead letters and acknowledges it. 0 if it is another consumer's; 2 if it is not pending any more,
-- as after this script itself. Without fields it only begins the idle time of a consumer's own entry again.
if redis.replicate_commands then redis.replicate_commands() end
local stream, dead, group, me, id = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
if not pending then return 2 end
if pending[2] ~= me then return 0 end
if #ARGV == 4 then
  redis.call('XCLAIM', stream, group, me, 0, id, 'JUSTID')
  return 1
end
-- The server refuses only the first write of a script when its memory is full, and this one needs no memory. So a consumer
-- can go on, past an entry that it cannot handle.
redis.call('XCLAIM', stream, group, me, 0, id, 'JUSTID')
redis.call('XADD', dead, '*', unpack(ARGV, 5))
redis.call('XACK', stream, group, id)
if ARGV[4] == 'delete' then redis.call('XDEL', stream, id) end
return 1
