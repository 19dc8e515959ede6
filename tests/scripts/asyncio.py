import asyncio
async def one(at):
    process = await asyncio.create_subprocess_exec('cksum', f'tree/folder-{at}/file-1.txt', stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0]
async def main():
    print(await asyncio.gather(*[one(at) for at in range(8)]))
asyncio.run(main())
