-- Moves an entry from the dead letters to the stream. Returns 0 if the entry is gone, 2 if the stream does not exist.
if redis.replicate_commands then redis.replicate_commands() end
local dead, stream, id = KEYS[1], KEYS[2], ARGV[1]
local entry = redis.call('XRANGE', dead, id, id)[1]
if not entry then return 0 end
if not redis.call('XADD', stream, 'NOMKSTREAM', '*', unpack(entry[2])) then return 2 end
redis.call('XDEL', dead, id)
return 1
