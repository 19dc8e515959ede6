import sqlite3, glob
db = sqlite3.connect('words.db')
db.execute('create table words (word text, path text)')
for path in sorted(glob.glob('tree/*/*.txt')):
    db.executemany('insert into words values (?, ?)', [(word, path) for word in open(path).read().split()[:100]])
db.commit()
for row in db.execute('select word, count(*) from words group by word order by word'): print(row)
