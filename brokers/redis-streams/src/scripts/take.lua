-- Takes over idle entries. Returns the cursor, {id, fields, deliveries, retry mark or empty} of each entry, and the
-- number of deleted entries, whose marks are removed. JUSTID comes first, because Redis 6.2 does not report deleted
-- entries otherwise, and they would stay pending forever.
if redis.replicate_commands then redis.replicate_commands() end
local stream, group, me = KEYS[1], ARGV[1], ARGV[2]
local found = redis.call('XAUTOCLAIM', stream, group, me, ARGV[3], ARGV[4], 'COUNT', ARGV[5], 'JUSTID')
local taken, gone = {}, 0
for _, id in ipairs(found[3] or {}) do
  redis.call('HDEL', KEYS[2], id)
  gone = gone + 1
end
for _, id in ipairs(found[2]) do
  local entry = redis.call('XCLAIM', stream, group, me, 0, id)[1]
  if entry and entry[2] then
    local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
    taken[#taken + 1] = {id, entry[2], pending[4], redis.call('HGET', KEYS[2], id) or ''}
  else
    redis.call('XACK', stream, group, id)
    redis.call('HDEL', KEYS[2], id)
    gone = gone + 1
  end
end
return {found[1], taken, gone}
