-- Adds entries in order and stops at the first error. Returns the ids, and the error of the next entry or an empty
-- text. Arguments of each entry: index of the stream's key, number of field parts, the parts.
if redis.replicate_commands then redis.replicate_commands() end
local ids, at = {}, 2
while at < #ARGV do
  local first, last = at + 2, at + 1 + ARGV[at + 1]
  local id
  if ARGV[1] == 'existing' then
    id = redis.pcall('XADD', KEYS[tonumber(ARGV[at])], 'NOMKSTREAM', '*', unpack(ARGV, first, last))
  else
    id = redis.pcall('XADD', KEYS[tonumber(ARGV[at])], '*', unpack(ARGV, first, last))
  end
  if not id then return {ids, 'NOSTREAM'} end
  if type(id) == 'table' then return {ids, id.err} end
  ids[#ids + 1], at = id, last + 1
end
return {ids, ''}
