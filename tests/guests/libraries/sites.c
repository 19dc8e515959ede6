// A library with a system call instruction of its own, and little else.
long sites_read(int file, void *buffer, unsigned long length) {
    long result;
    __asm__ volatile("mov $0, %%eax\n syscall"
                     : "=a"(result)
                     : "D"(file), "S"(buffer), "d"(length)
                     : "rcx", "r11", "memory");
    return result;
}
