-- Acknowledges an entry, removes its retry mark, and deletes the entry if asked to.
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
if KEYS[2] then redis.call('HDEL', KEYS[2], ARGV[2]) end
if ARGV[3] == 'delete' then redis.call('XDEL', KEYS[1], ARGV[2]) end
return 1
